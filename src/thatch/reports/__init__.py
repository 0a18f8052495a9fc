"""Reports: pages for people.

In reading order:

    page    tables and plots as one page of HTML that needs nothing but itself
    audit   what a reduction found about a rule set, in words, with what it saves
    places  where events are and where subscriptions are, by cell
    learn   what events and subscriptions look like, as one page
"""
