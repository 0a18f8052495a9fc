"""Methods that no product path uses, kept to compare with.

In reading order:

    counting  the counting algorithm, the field's standard, as a match index
    summary   what a link wants, summarised attribute by attribute
"""
