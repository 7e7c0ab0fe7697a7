"""Everything that runs on a GPU node for one trial. Nothing here knows of sweeps or of Ray.

docs/architecture.md says what each folder and file does.
Imports run one way: isolation > trial > anatomy > loops > trackers > node > techniques > the files
of this folder.

To follow one trial, read ``isolation.slot``, ``isolation.forkserver``, ``isolation.child_main``,
``trial.run``, ``trial.assembly`` and ``loops.trainer``, in this order.
"""
