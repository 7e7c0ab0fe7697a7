"""Everything that runs on a GPU node for one trial. Nothing here knows of sweeps or of Ray.

spec/, record.py, flags.py      the messages: what to run, and what came of it (plain data)
anatomy_record.py               a trial's breakdown of memory and time (plain data)
tasks/                          what each task means to transformers; images of each family
loss_scaling.py                 whether accumulated steps have the right loss
steady_state.py                 when training is steady, and when enough was measured
self_process.py                  a module of ours as a process, wherever it is started
errors.py                       exceptions, signals and exit codes as outcomes
infrastructure.py               failures of the machine, which say nothing about a trial
techniques/                     every training technique as a row of data; the registry of hooks
library_facts/                  what the installed libraries know, as data for planning
trial/                          one trial: requirements, model, data, training, effective config
loops/                          the training loops that can be measured (Trainer, Accelerate)
trackers/                       the instruments, one file each: allocator, NVML, host, steps ...
anatomy/                        where the memory and the time of a trial went
isolation/                      a clean process per trial: slot, fork server, child
node/                           this machine: NVML, versions, memory cap; checks for the doctor

Imports run one way: isolation > trial > anatomy > loops > trackers > node > techniques > the files
of this folder.

To follow one trial, read ``isolation.slot``, ``isolation.forkserver``, ``isolation.child_main``,
``trial.run``, ``trial.assembly`` and ``loops.trainer``, in this order.
"""
