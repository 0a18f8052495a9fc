"""`thatch help clauses`: what a clause may say, on one page."""

CLAUSES = """\
A clause is a SQL WHERE condition, without the word WHERE, over the attributes of a space. It means what Spark SQL says.

comparisons    price < 20   price >= 20   symbol = 'A'   symbol <> 'A'   IS [NOT] DISTINCT FROM
ranges, lists  price BETWEEN 10 AND 20   symbol IN ('A', 'B')   symbol NOT IN ('A')
text           symbol LIKE 'abc%' (a prefix); any pattern on an enum
NULL, truth    symbol IS NULL   symbol IS NOT NULL   live   NOT live   live IS TRUE
logic          AND   OR   NOT   ( )
numbers        5   5.0   1e3   '-Infinity' and 'NaN' of a double
texts          'it''s' or "it's"
times          DATE'2020-02-29'   TIMESTAMP'2020-02-29 13:45:00'
names          price   detail.state (a field)   `a name with blanks`
balls          within(radius, x, cx, y, cy)
comments       -- to the end of the line   /* … */

not supported                                        write instead
columns compared with columns                        a comparison with a value
functions, CAST, CASE, arithmetic, intervals         the value
sub-queries, EXISTS, parameters                      the values
LIKE '%x', LIKE 'a_', ILIKE, RLIKE on strings        a constant prefix, LIKE 'abc%'
= NULL, <> NULL (allowed, and never true)            IS NULL, IS NOT NULL
NOT within(…)                                        a region is a union of boxes and balls

`thatch validate --space SPACE CLAUSE` checks clauses and says what is wrong with them, and where.
"""
