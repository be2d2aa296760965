# fish: completes commands, options, their values and files. The command provides the completions (onepass --complete).
function __onepass_words
    set -l words (commandline -opc) (commandline -ct)
    command $words[1] --complete $words[2..-1] 2>/dev/null
end
complete -c onepass -f -a '(__onepass_words | string match -v :files)'
complete -c onepass -F -n '__onepass_words | string match -q :files'
