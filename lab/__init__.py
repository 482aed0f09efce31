"""The failure lab: watch the published lock protocols break on real servers, and see what holds.

A protocol (protocols/) is how a client locks and unlocks. A place (places/) is a set of real servers. A scenario
(scenarios/) is a day on which something goes wrong: it gives orders to clients on a stage (stage.py), one process each,
and disturbs them, their network and their servers. What happened is a history; the referee (referee.py) judges every
history by the same rules. A cell of the matrix is a scenario with a protocol at a place.
"""
