package tallyman

// Version is the version of this tree; a release build sets it by its linker
// flags.
var Version = "0.1.0-dev"
