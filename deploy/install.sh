#!/usr/bin/env bash
# Inside the bundle: checks it and installs it into .venv beside this file, without a network. ./install.sh
set -euo pipefail
cd "$(dirname "$0")"

sha256sum --check --quiet SHA256SUMS
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --no-index --find-links wheels -c constraints.txt 'training-frontier[full]' 'ray[default]'
.venv/bin/python -m orchestrator.doctor
