#!/usr/bin/env bash
# The manual page and the completions are generated from the command's help, so each option is in them. The page is formatted without
# warnings. Each installed shell completes commands, options, values and files.
set -euo pipefail
cd "$(dirname "$0")/.."
source_folder=$PWD
build=$(realpath "${ONEPASS_BUILD_DIR:-build/release}")
[ -x "$build/tools/onepass" ] || { echo "SKIPPED: $build has no command"; exit 77; }
export PATH=$build/tools:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_completion: $*" >&2; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }  # WHAT EXPECTED GOT

echo "--- the manual page"
page=$build/share/onepass.1
[ -s "$page" ] || tools/man.sh onepass 0 >"${page:=$work/onepass.1}"
commands=$(onepass --help | sed -nE 's/^  ([a-z]+)  .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 6 ] || fail "too few commands: $commands"
for command in $commands; do
  grep -qx "\.SH ONEPASS ${command^^}" "$page" || fail "the page lacks $command"
  for option in $(onepass "$command" --help | sed -nE 's/^  (-[a-z],)?(--[a-z-]+).*/\2/p'); do
    sed -n "/^\.SH ONEPASS ${command^^}\$/,/^\.SH ONEPASS [^${command:0:1}]/p" "$page" | grep -qF -- "${option//-/\\-}" || fail "the page lacks $option of $command"
  done
done
if command -v man >/dev/null && command -v groff >/dev/null; then
  same "warnings of the page" "" "$(MANWIDTH=100 man --warnings -E UTF-8 -l "$page" 2>&1 >"$work/text")"
  grep -q 'compiles array formulas' "$work/text" || fail "the page has no text"
else
  echo "SKIPPED: man is not installed"
fi

echo "--- examples: each option has one in the pages, whose blocks are run by test_readme.sh"
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md docs/*.md docs/*/*.md | sed -e ':a' -e '/\\$/{N;s/\\\n */ /;ba}' >"$work/examples"
for command in $commands; do
  for option in $(onepass "$command" --help | sed -nE 's/^  (-[a-z],)?(--[a-z-]+).*/\2/p'); do
    short=$(onepass "$command" --help | sed -nE "s/^  (-[a-z]),$option .*/\1/p")
    grep -qE "onepass $command( .*)? ($option${short:+|$short})([ =]|\$)" "$work/examples" || fail "no example of onepass $command $option in README.md or docs/"
  done
done

echo "--- bash"
touch "$work/x.npy" "$work/y.npy"
completed() {  # WORD... : completions of the last word
  bash --norc -c '
    source "$1"; shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _onepass 2>/dev/null
    printf "%s\n" "${COMPREPLY[@]}"' - "$source_folder/tools/completions/onepass.bash" "$@" | sort | paste -sd' '
}
same "commands" "$(tr ' ' '\n' <<<"$commands" | grep ^d | sort | paste -sd' ')" "$(completed onepass d)"
same "an option" "--threads" "$(completed onepass run --thr)"
same "the options of dump" "$(onepass dump --help | sed -nE 's/^  (-[a-z],)?(--[a-z-]+).*/\2/p' | sort | paste -sd' ')" "$(completed onepass dump --)"
same "modes" "adaptive generic reference specialized unfused" "$(completed onepass run 'x*2' --mode '')"
same "relaxations" "contract" "$(completed onepass bench --relax c)"
same "limits" "max_nodes=" "$(completed onepass run --limit max)"
same "actions of the cache" "export" "$(completed onepass cache exp)"
same "files" "$work/x.npy" "$(completed onepass run 'x*2' "x=$work/x")"
same "a value behind =, where bash splits" "generic" "$(completed onepass run --mode = gen)"
same "devices" "cpu cuda" "$(completed onepass run --device '')"
same "how bench calls" "fresh" "$(completed onepass bench --call f)"
same "no files where none belong" "" "$(completed onepass bench 'x*2' --threads '')"
for mode in $(completed onepass run --mode ''); do  # each offered value is accepted
  onepass dump 'x*2' --shapes 'x=f32[4]' --mode "$mode" --groups >/dev/null || fail "--mode $mode is offered, but refused"
done

if command -v zsh >/dev/null; then
  echo "--- zsh"
  zsh -f -c "autoload -U compinit; fpath=($source_folder/tools/completions \$fpath); compinit -u -d $work/dump; [[ \$_comps[onepass] == _onepass ]]" || fail "zsh does not know the completion"
  zsh -n tools/completions/_onepass || fail "zsh cannot read the completion"
  # Completions of an interactive shell on a pseudo-terminal, by TAB. ^T prints the line.
  cat >"$work/types.zsh" <<'EOF'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "cd $1; autoload -U compinit; fpath=($2 \$fpath); compinit -u -d $1/dump"
zpty -w shell 'show() { print -r -- "<$BUFFER>"; BUFFER= }; zle -N show; bindkey "^T" show; PROMPT='
shift 2
while (($#)); do
  zpty -w -n shell "$1"$'\t\C-t'
  zpty -r -m shell text "*<$2>*" || exit 1
  shift 2
done
EOF
  timeout 60 zsh -f "$work/types.zsh" "$work" "$source_folder/tools/completions" \
    'onepass doc' 'onepass doctor ' 'onepass run x --thr' 'onepass run x --threads ' 'onepass run x --mode gen' 'onepass run x --mode generic ' \
    'onepass cache exp' 'onepass cache export ' 'onepass run --limit max' 'onepass run --limit max_nodes=' 'onepass run x x=y.n' 'onepass run x x=y.npy ' ||
    fail "zsh does not complete"
else
  echo "SKIPPED: zsh is not installed"
fi
if command -v fish >/dev/null; then
  echo "--- fish"
  same "an option in fish" "--threads" "$(fish --no-config -c "source tools/completions/onepass.fish; complete -C 'onepass run --thr'" | cut -f1)"
else
  echo "SKIPPED: fish is not installed"
fi
