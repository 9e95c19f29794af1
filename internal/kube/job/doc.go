// Package job builds what a cluster runs for an attempt: its Job, or its Pod
// alone. It is pure. job.go is the Job, pod.go our part of its Pod, template.go
// what an agent adds to that and may not, name.go names and labels.
package job
