#!/usr/bin/env bash
# Everything an air-gapped machine needs, in one file: deploy/bundle.sh [OUTPUT.tar]
# Run it on a connected machine of the same architecture and Python as the target, from the repository's root.
set -euo pipefail
cd "$(dirname "$0")/.."

output=$(realpath "${1:-orchestrator-bundle.tar}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle="$work/orchestrator-bundle"
mkdir "$bundle"

# Wheels of all packages, this one among them: nothing is left to build where there is no network.
"${PYTHON:-python3}" -m pip wheel --quiet -c constraints.txt --wheel-dir "$bundle/wheels" '.[full]' 'ray[default]'
cp -r configs constraints.txt LICENSE deploy/install.sh "$bundle"
(cd "$bundle" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$bundle"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf "$output" orchestrator-bundle
echo "$output: $(find "$bundle/wheels" -name '*.whl' | wc -l) wheels"
