// Package observe turns what a cluster says about an attempt into neutral
// facts. It is pure: scene.go is what is there, look.go the judge, blocked.go
// why an agent does not start, end.go how it ended, node.go and quota.go what
// nodes and quotas say of it, lean.go what of it is kept in memory.
package observe
