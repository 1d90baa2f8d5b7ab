#!/bin/sh
# Two worlds of eight processes: one in which all hold examples/step.hlo, and one in which process
# 5 was built with another batch size. Usage: demo.sh RANKMUSTER
set -eu
rankmuster=$1
here=$(dirname "$0")
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT

echo "== eight processes, one program"
"$rankmuster" up -n 8 --program "$here/step.hlo"

for process in 0 1 2 3 4 6 7; do
  cp "$here/step.hlo" "$world/$process.hlo"
done
cp "$here/step_other_rows.hlo" "$world/5.hlo"

echo
echo "== the same, but process 5 has another batch size"
code=0
"$rankmuster" up -n 8 --program "$world/{rank}.hlo" || code=$?
echo
echo "exit code $code"
test "$code" -eq 1
