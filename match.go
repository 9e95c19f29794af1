package tallyman

import (
	"path"
	"strings"
)

// MatchPath reports whether a pattern matches a slash-separated path. * and ?
// stay within a folder, ** crosses folders.
func MatchPath(pattern, name string) bool {
	return matchParts(strings.Split(path.Clean(pattern), "/"), strings.Split(name, "/"), false)
}

// MatchBelow reports whether something in the folder may match the pattern.
func MatchBelow(pattern, dir string) bool {
	return matchParts(strings.Split(path.Clean(pattern), "/"), strings.Split(dir, "/"), true)
}

func matchParts(pattern, name []string, below bool) bool {
	for i, p := range pattern {
		if p == "**" {
			if below {
				return true
			}
			for skip := i; skip <= len(name); skip++ {
				if matchParts(pattern[i+1:], name[skip:], false) {
					return true
				}
			}
			return false
		}
		if i == len(name) {
			return below
		}
		if ok, err := path.Match(p, name[i]); err != nil || !ok {
			return false
		}
	}
	return !below && len(pattern) == len(name)
}
