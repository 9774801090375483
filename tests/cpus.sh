#!/usr/bin/env bash
# Runs pytest as on machines of other sizes: tests/cpus.sh COUNT... -- ARGUMENTS. A count that this machine has is an
# affinity; a larger one is shown by a library that answers for the kernel, to Python, Node and Chromium alike.
set -euo pipefail
cd "$(dirname "$0")/.."

counts=()
while [ "$1" != -- ]; do counts+=("$1"); shift; done
shift
library=$(mktemp --suffix .so)
trap 'rm -f "$library"' EXIT
cc -shared -fPIC -O1 -o "$library" tests/support/cpus.c -ldl

for count in "${counts[@]}"; do
  echo "== $count processors"
  if [ "$count" -le "$(nproc)" ]; then
    taskset --cpu-list "0-$((count - 1))" .venv/bin/python -m pytest "$@"
  else
    EDGE_INFER_TEST_CPUS=$count LD_PRELOAD=$library .venv/bin/python -m pytest "$@"
  fi
done
