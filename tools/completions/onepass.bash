# bash: completes commands, options, their values and files. The command provides the completions (onepass --complete).
_onepass() {
  local word=${COMP_WORDS[COMP_CWORD]} candidate
  COMPREPLY=()
  [[ $word == = ]] && word=
  while IFS=$'\t' read -r candidate _; do
    if [[ $candidate == :files ]]; then
      compopt -o filenames 2>/dev/null
      while read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "${word#*=}")
    elif [[ $candidate == "$word"* ]]; then
      COMPREPLY+=("$candidate")
      if [[ $candidate == *= ]]; then compopt -o nospace 2>/dev/null; fi
    fi
  done < <("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _onepass onepass
