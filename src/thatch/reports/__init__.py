"""Reports: pages for people.

In reading order:

    page   tables and plots as one page of HTML that needs nothing but itself
    audit  what a reduction found about a rule set, in words, with what it saves
    learn  what events and subscriptions look like, in tables and as one page
"""
