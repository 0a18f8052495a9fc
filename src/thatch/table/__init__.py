"""The library's front door: a table of standing queries in one process.

In reading order:

    names     ids and the numbers by which indexes know them
    explain   who covers a subscription, what only it wants, which condition an event fails
    snapshot  a table on disk: the old file or the new one, never a torn one
    moment    what a reader holds: a view of the index with the ids of that time
    table     `SubscriptionTable`: an active set and a match index behind the public API
"""
