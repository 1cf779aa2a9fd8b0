#compdef fab
# Completion of fab in zsh, as `fab --print-completion-script zsh` prints it.
_ranklift_fab() {
    local line text
    local -a lines described
    lines=("${(@f)$("${words[1]}" --complete -- zsh "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
    if [[ ${lines[1]} == :files* ]]; then
        _files
        return
    fi
    for line in "${lines[@]}"; do
        text="${line#*$'\t'}"
        [[ -n $line ]] && described+=("${${${line%%$'\t'*}//\\/\\\\}//:/\\:}${text:+:$text}")
    done
    (( $#described )) && _describe -V fab described
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -D; }
compdef _ranklift_fab fab
