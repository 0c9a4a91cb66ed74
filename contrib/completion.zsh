#compdef ctrdzvd ctrun-stat ctrun-train
# SPDX-License-Identifier: Apache-2.0
#
# Completion for zsh of the programs beside ctrun (whose own script ctrun prints): the options that
# --help lists.
[[ $PREFIX == --* ]] && PREFIX=${PREFIX//_/-}
_arguments -S '*::argument:_files' --
