# Completion of fab in fish, as `fab --print-completion-script fish` prints it.
function __ranklift_fab
    set -l typed (commandline -opc)
    set -l answer ($typed[1] --complete -- fish $typed[2..-1] (commandline -ct) 2>/dev/null)
    if string match -q ':files*' -- $answer[1]
        __fish_complete_path (commandline -ct | string unescape)
    else
        printf '%s\n' $answer
    end
end
complete -c fab -f -k -a '(__ranklift_fab)'
