"""What every sink promises, and the values by which the Spark applications use it.

Rule R4: the target's commit is the truth, and every commit carries the whole state of its table. So
a sink has one way to change anything: `commit(epoch, build)`. It opens the table fresh, reads the
newest own state there, asks `build`, a pure function, what to publish on top of *that* state, and
publishes change and new state together, or nothing (rule R8: compare-and-set). After a lost race
`build` is asked again with the state that won, and answers None if its work is already in. Thus a
replay after any crash is a no-op, because the decision is always made on what the target really
holds.

What is published is a value, a `Change`; a sink has a table from the kinds of change to what it
does for each, and names them in its `Capabilities`. Rows of a snapshot are staged first, by Spark
tasks on other machines: what comes of it, a `StagedPart`, is opaque to all but the sink that made
it. A resnapshot (rule R5) fills a staged copy, a target of the same kind, which is published by one
`Replace`.
"""
