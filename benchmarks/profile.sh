#!/usr/bin/env bash
# The stages of the native engine by their part of its time: one thread, 600 real images, preset cifar.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python}
case $python in /*) ;; */*) python=../$python ;; esac
data=$(mktemp)
trap 'rm -f "$data"' EXIT
for step in "100 5 1" "200 8 2" "300 9 1" "500 13 1" "400 21 1"; do
  read -r t patch pool <<<"$step"
  perf record -q -o "$data" "$python" - "$t" "$patch" "$pool" <<'PYTHON'
import sys
import numpy as np
sys.path.insert(0, ".")
from engine import block_of, noisy, pictures
from patchtrace import Recipe
from patchtrace import Compute
from patchtrace.engines import Comparison, Question, get_engine

t, patch, pool = map(int, sys.argv[1:])
block = block_of(pictures(600))
how = Comparison(patch, pool, "orthonormal", "match", 100)
for _ in range(4):
    get_engine(Compute(engine="native", threads=1)).compare(Question(noisy(Recipe.preset("cifar"), t, 32), block, how, 1 << 30))
PYTHON
  echo "--- t $t, patch $patch, pool $pool"
  perf report -i "$data" --stdio 2>/dev/null | grep _native | sed 's/patchtrace::(anonymous namespace):://g' |
    awk '{share = $1; sub("%", "", share); total += share; $1 = $2 = $3 = $4 = ""; lines[NR] = $0; shares[NR] = share}
         END {for (i = 1; i <= NR; ++i) if (shares[i] > 0.01 * total) printf "%5.1f %% %s\n", 100 * shares[i] / total, lines[i]}'
done
