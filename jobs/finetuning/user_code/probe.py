"""Loads the user's own objects in this process: ``python -m jobs.finetuning.user_code.probe JSON``.

The last line of its output is a JSON text: what is wrong, or empty if nothing is.
"""

import json
import subprocess
import sys

from jobs import self_process
from jobs.spec import UserCode, from_json, to_json


def user_code_problem(user_code: UserCode) -> str:
    """What is wrong with the user's own code, tried in a new process; empty if nothing is. It runs
    the user's modules. So ask only if the command line allows that."""
    names = ", ".join(user_code.names)
    given = json.dumps(to_json(user_code))
    command = self_process.command("jobs.finetuning.user_code.probe", given)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired as error:
        return f"importing {names} took more than {error.timeout:g} seconds"
    try:
        return str(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return f"importing {names} ended the process with status {done.returncode}"


def main() -> None:
    """Load the objects that the first argument names, and print what is wrong."""
    from jobs.finetuning.user_code.objects import UserCodeError, user_objects

    problem = ""
    try:
        user_objects(from_json(UserCode, json.loads(sys.argv[1])))
    except UserCodeError as error:
        problem = " ".join(str(error).split())
    print(f"\n{json.dumps(problem)}")


if __name__ == "__main__":
    main()
