#!/usr/bin/env bash
# Checks the CUDA side of Baton on a machine with an H100, H200 or GH200, in under 10 minutes, with no network and no
# root (docs/CUDA.md lists the stages). Without such a GPU it says why, and ends with 0.
#   tools/gpu_check.sh [--out DIR] [--quick] [--only STAGE]
#     --out DIR        results.jsonl, log.txt; build/gpu_check if not told
#     --quick          fewer shapes, about a minute
#     --only STAGE     S0 to S6, or one part such as S1.c
#     --require-gpu    a machine without a GPU that can serve is a failure
#     --program FILE   baton_gpu_check; build/release/baton_gpu_check if not told
#     --baton FILE     for S3, with libbaton_cuda.so beside it; build/release/baton if not told
#     --engine FILE    for S3, baton_gpu_engine_check; that of build/release/tests/engine if not told
#     --build          compiles it here, with nvcc and g++ (under 2 minutes)
#     --cuda DIR       folder of CUDA 13 for --build
#     --lib-dir DIR    folder of libcublasLt.so.13; that of python3's wheels, else the system's, if not told
#     --time-out N     seconds of each part, in place of its own
# Exit status: 0 no failure, 1 a failure, 2 refused (binaries of other sources, wrong arguments).
set -uo pipefail
cd "$(dirname "$0")/.."

# Parts and the seconds each may take, the most telling first: about a third of that is what they need.
parts="S0.gpu:10 S1.e:15 S1.a:15 S1.b:10 S1.d:15 S1.k:10 S2.attention:30 S2.gemm:30 S2.rows:15 S2.sample:15
  S3.oracle:15 S3.cpu:15 S3.batches:15 S3.orders:45 S0.memory:15 S0.matrix:15 S0.link:15 S0.host:20 S1.f:10 S1.h:10
  S4.steps:25 S3.serve:80 S6.memcheck:20 S6.racecheck:20 S1.c:25 S5.peers:55"
deadline=570  # parts that would begin later are left out

out=build/gpu_check quick="" only="" require="" program="" build="" cuda="" lib_dir="" time_out=""
baton=build/release/baton engine=build/release/tests/engine/baton_gpu_engine_check
refuse() { echo "gpu_check: $1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=--quick ;;
    --require-gpu) require=1 ;;
    --build) build=1 ;;
    --out | --only | --program | --baton | --engine | --cuda | --lib-dir | --time-out)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      name=${1#--}
      printf -v "${name//-/_}" %s "$2"
      shift ;;
    --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) refuse "unknown argument $1; see --help" ;;
  esac
  shift
done
chosen=()
for part in $parts; do
  case ${part%:*} in "${only:-S}"*) chosen+=("$part") ;; esac
done
[ ${#chosen[@]} -gt 0 ] || refuse "no stage $only: there are $(echo $parts | sed 's/:[0-9]*//g')"

skip() {
  echo "gpu_check: SKIP, $1"
  [ -z "$require" ] || { echo "gpu_check: FAIL, a GPU is required" >&2; exit 1; }
  exit 0
}
# library_of_wheels: prints the folder of cuBLASLt among python3's packages, where PyTorch brings it along
library_of_wheels() {
  local packages folder
  for packages in $(python3 -c 'import site; print(*site.getsitepackages())' 2>/dev/null); do
    for folder in "$packages"/nvidia/*/lib; do
      [ ! -e "$folder/libcublasLt.so.13" ] || { echo "$folder"; return; }
    done
  done
}
# compile FOLDER: builds the program as CMake does
compile() {
  local folder=$1 root nvcc="" unit pids=() pid
  for root in "$cuda" "${XDG_CACHE_HOME:-$HOME/.cache}/baton-tools/cuda" /usr/local/cuda; do
    [ -n "$nvcc" ] || [ ! -x "$root/bin/nvcc" ] || nvcc=$root/bin/nvcc
  done
  [ -n "$nvcc" ] || nvcc=$(command -v nvcc) || refuse "--build: no nvcc; name its folder with --cuda"
  root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  mkdir -p "$folder"
  sh engine/cuda/source_id.sh . "$folder/source_id.cc"
  for unit in engine/cuda/*.cu engine/cuda/check/*.cu; do
    sh engine/cuda/compile.sh "$nvcc" . "$unit" "$folder/$(basename "$unit").o" & pids+=($!)
  done
  for unit in engine/cuda/{gemm_choice,plugin,step_model}.cc engine/cuda/check/*.cc "$folder/source_id.cc"; do
    g++ -std=c++20 -O2 -I. -isystem "$root/include" -c "$unit" -o "$folder/$(basename "$unit").o" & pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || refuse "--build: a file did not compile (see above)"; done
  g++ -static-libgcc -static-libstdc++ "$folder"/*.o "$(ls "$root"/lib*/libcudart_static.a | head -1)" -ldl -lrt \
    -pthread -o "$folder/baton_gpu_check" || refuse "--build: the program did not link"
  program=$folder/baton_gpu_check
}

begin=$SECONDS
mkdir -p "$out" || refuse "$out cannot be made"
if [ -n "$build" ]; then
  compile "$out/program"
elif [ -z "$program" ]; then
  program=build/release/baton_gpu_check
  if [ ! -x "$program" ]; then
    [ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null ||
      skip "this machine has no NVIDIA GPU (neither /dev/nvidiactl nor nvidia-smi)"
    refuse "no $program: bring it along from a build (scripts/cuda_tools.sh, then ninja baton_gpu_check), or --build"
  fi
fi
sources=$(sh engine/cuda/source_id.sh .)
built=$("$program" --source-id) || refuse "$program does not run"
[ "$built" = "$sources" ] ||
  refuse "$program is of other sources ($built, the tree has $sources): build it anew, or --build"
gpu=$(timeout 60 "$program" --probe)
status=$?
[ $status -ne 77 ] || skip "$gpu"
[ $status -eq 0 ] || refuse "$program --probe ends with $status: $gpu"
commit=$(git describe --always --abbrev=12 --exclude='*' --dirty=+ 2>/dev/null) || commit=unknown
[ -n "$lib_dir" ] || lib_dir=$(library_of_wheels)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)

results=$out/results.jsonl log=$out/log.txt
: >"$results" >"$log"
# add PART VERDICT NAME NOTE: a line of the script's own
add() {
  printf '{"part":"%s","name":"%s","shape":"","value":0,"unit":"","verdict":"%s","note":"%s"}\n' "$1" "$3" "$2" \
    "$(printf %s "$4" | tr -d '\\"' | tr '\n\t' '  ')" >>"$results"
}
add S0.tree INFO "$gpu" "commit $commit, sources $sources, driver ${driver:-unknown}, $(date -u +%Y-%m-%dT%H:%MZ)"
for part in "${chosen[@]}"; do
  name=${part%:*} seconds=${time_out:-${part#*:}}
  if [ $((SECONDS - begin)) -ge $deadline ]; then
    add "$name" SKIP "the part" "no time was left"
    continue
  fi
  lines=$results
  case $name in
    S3.serve) needs=$baton command=(python3 tools/gpu_serve_check.py --baton "$baton") ;;
    S3.*)  # prints text
      needs=$engine lines=$log
      command=("$engine" "$(dirname "$baton")/libbaton_cuda.so" "[${name#S3.}]" -w NoTests) ;;
    S6.*)
      needs=compute-sanitizer lines=$log
      command=(compute-sanitizer --tool "${name#S6.}" --error-exitcode 1 "$engine" "$(dirname "$baton")/libbaton_cuda.so"
        "[short]" -w NoTests) ;;
    S5.peers) needs=python3 command=(python3 tools/gpu_peers.py) ;;
    *)
      needs=$program
      command=("$program" "$name" --predictions tests/data/golden/cuda-sm90-gemm.txt $quick
        ${lib_dir:+--lib-dir "$lib_dir"}) ;;
  esac
  if ! command -v "$needs" >/dev/null; then
    add "$name" SKIP "the part" "there is no $needs"
    continue
  fi
  echo "== $name" | tee -a "$log"
  timeout -k 5 "$seconds" "${command[@]}" >>"$lines" 2>"$out/stderr"
  status=$?
  cat "$out/stderr" >>"$log"
  if [ "$lines" = "$log" ]; then
    case $status in
      0) add "$name" PASS "the part" "$(tail -2 "$log")" ;;
      1 | 42) add "$name" FAIL "the part" "$(grep -A3 FAILED "$log" | tail -4)" ;;
    esac
  fi
  [ -z "$(tail -c 1 "$results")" ] || sed -i '$d' "$results"  # a line that a dying part has not ended
  case $status in
    0 | 1 | 42) ;;  # 1: a line says what failed
    124 | 137) add "$name" FAIL "the part" "time-out after $seconds s" ;;
    *) add "$name" FAIL "the part" "ended with $status: $(tail -1 "$out/stderr")" ;;
  esac
done
rm -f "$out/stderr"

# The table: every ceiling, and of comparisons how many have which verdict. Lines are those of report.cc.
awk -v seconds=$((SECONDS - begin)) -v gpu="$gpu" -v commit="$commit" '
  function field(name, text) {
    if (!match($0, "\"" name "\":\"([^\"\\\\]|\\\\.)*\"")) return ""
    text = substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5)
    gsub(/\\/, "", text)
    return text
  }
  function number() { return match($0, /"value":[^,]*/) ? substr($0, RSTART + 8, RLENGTH - 8) : "" }
  {
    part = field("part"); verdict = field("verdict")
    if (part == "") next
    if (!(part in seen)) { order[++n] = part; seen[part] = 1 }
    count[part, verdict]++
    stage = substr(part, 1, 2)
    if (!(stage in worst)) { stages[++n_stages] = stage; worst[stage] = "PASS" }
    if (verdict == "FAIL" || (verdict ~ /WARN|SKIP/ && worst[stage] != "FAIL")) worst[stage] = verdict
    if (verdict == "FAIL") failed = 1
    if (verdict != "PASS" && !(verdict == "INFO" && part == "S1.c"))
      lines[part] = lines[part] sprintf("  %-4s %s%s: %s %s%s\n", verdict, field("name"),
        field("shape") == "" ? "" : ", " field("shape"), number(), field("unit"),
        field("note") == "" ? "" : " (" field("note") ")")
  }
  END {
    for (i = 1; i <= n; ++i)
      printf "%s: %d pass, %d warn, %d fail, %d skip\n%s", order[i], count[order[i], "PASS"],
        count[order[i], "WARN"], count[order[i], "FAIL"], count[order[i], "SKIP"], lines[order[i]]
    printf "gpu_check: %s", gpu
    for (i = 1; i <= n_stages; ++i) printf ", %s %s", stages[i], worst[stages[i]]
    printf ", %d s, commit %s\n", seconds, commit
    exit failed ? 1 : 0
  }' "$results" | tee -a "$log"
exit "${PIPESTATUS[0]}"
