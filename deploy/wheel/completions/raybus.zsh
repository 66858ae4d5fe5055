#compdef raybus

_raybus_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _RAYBUS_COMPLETE=complete_zsh raybus)
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _raybus_completion "$@"
else
  compdef _raybus_completion raybus
fi
