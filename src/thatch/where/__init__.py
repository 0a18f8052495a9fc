"""WHERE clauses: SQL text to regions, and regions to canonical SQL.

In reading order:

    literals     literals as Spark reads them, and casts from text
    lexer        a clause to its shape and its literals, in one bounded linear scan
    names        which columns clauses mention
    coercion     where a literal cuts an axis, after Spark's type coercion
    hints        what a refused clause was probably meant to say
    like         LIKE patterns, and the strings that start with a prefix
    plans        AND and OR over atoms (comparison, IN, LIKE, IS NULL); with its literals an atom gives an interval set
    plain        the plan of a plain clause: tests joined by AND and OR, without a parser
    compile      a clause to a region: a shape to a plan, through sqlglot if it is not plain
    reasons      why a valid clause matches nothing
    many         many clauses: regions, and what is wrong with the others
    to_sql       a region to canonical SQL
    enum_bounds  regions within typed bounds of an enum
"""
