"""Matching, reducing, learning about and auditing tables and files in this process, on Arrow: no Spark, no Java.

In reading order:

    files          files, folders and globs, and what they hold by their names
    text_values    columns of text to values, as Spark casts them
    events         tables and files of events, batch by batch, with the place of each row
    csv_events     events in CSV
    json_lines     events in JSON, an object a line
    sources        events from whatever somebody has: tables, frames, paths
    documents      YAML, TOML and JSON documents of rules, with their lines
    rule_files     `read_rules`: files of rules as people have them
    subscriptions  tables and mappings of subscriptions to regions, and what is wrong with the others
    inferred       the space of subscriptions over events: as given, or as the events have it
    writing        folders of results
    match          `match`: every event with every subscription that wants it
    reduce         `reduce`: which subscriptions are redundant, and which ones prove it
    learn          `learn`: what events and subscriptions look like
    audit          `audit`: a rule set reduced, described in words
"""
