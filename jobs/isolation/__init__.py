"""A clean process for each trial, forked from a parent that has imported everything.

::

    slot ──────── socket ───────► forkserver ───── fork ─────► child_main
    one per GPU   lines of JSON   the slot's parent process    one trial, then its end
    (an actor)    (channel)       child_runner, child_handle

slot            the handle on one GPU's parent: start it, send trials, kill it if it hangs
channel         the messages between slot and parent, with deadlines and heartbeats
forkserver      the parent: preloads once, then has one trial after another run
preload         imports everything that a trial may need, and initialises nothing
child_runner    runs each trial in a child of its own, and forks the next child meanwhile
child_handle    a child from its parent's side: fork or spawn it, wait for it, end it
child_main      the child itself: create a CUDA context, wait for the trial, run it
ranks           the children of one trial, a rank each: what ends one ends all
prewarm         parents that preload before there is a slot to take them over
scratch         temporary folders that go even if their process is killed
build_ops       builds DeepSpeed's ops before any timing, and removes the locks of killed builds
compiler_cache  removes libraries whose linker was killed

A process that is killed takes everything below it along: the kernel ends a child with its parent,
and a parent ends when its socket closes.
"""
