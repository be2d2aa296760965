# bash: completes commands, their options and their values. What there is to complete comes from the command's own --help.
_onepass() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} name=${COMP_WORDS[0]} command=${COMP_WORDS[1]}
  COMPREPLY=()
  local IFS=$'\n'
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "$("$name" --help 2>/dev/null | sed -nE 's/^  ([a-z]+)  .*/\1/p')
--help
--version" -- "$word"))
    return
  fi
  local help
  help=$("$name" "$command" --help 2>/dev/null)
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(sed -nE 's/^  (-[a-z],)?(--[a-z-]+).*/\2/p' <<<"$help")" -- "$word"))
    return
  fi
  # of an option that takes one of several words, these stand in its line
  local line
  line=$(grep -E "^  (-[a-z],)?$before " <<<"$help")
  case $before in
    --mode | --compare | --device | --call) COMPREPLY=($(compgen -W "$(_onepass_words "$before" "$help")" -- "$word")) ;;
    --relax) COMPREPLY=($(compgen -W "$(sed -nE 's/.*of ([a-z,]+);.*/\1/p' <<<"$line" | tr , '\n')" -- "$word")) ;;
    --limit) COMPREPLY=($(compgen -S = -W "$(sed -nE 's/.*NAME=NUMBER, of ([a-z_, ]+);.*/\1/p' <<<"$line" | tr -d ' ' | tr , '\n')" -- "$word")) && compopt -o nospace 2>/dev/null ;;
    --threads | --shapes) ;;
    *)
      if [[ $command == cache && $COMP_CWORD == 2 ]]; then
        COMPREPLY=($(compgen -W $'stats\nverify\nclear\nexport\nimport' -- "$word"))
      else
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "${word#*=}"))
      fi
      ;;
  esac
}
_onepass_words() {  # OPTION HELP
  case $1 in
    --mode | --compare) grep -E '^  --mode ' <<<"$2" | sed -E 's/.*TEXT +//; s/\([^)]*\)//g; s/ or /,/; s/ //g' | tr , '\n' ;;
    --device) printf 'cpu\ncuda\n' ;;
    --call) printf 'into\nfresh\nbind\n' ;;
  esac
}
complete -F _onepass onepass
