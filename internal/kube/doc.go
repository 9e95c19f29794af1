// Package kube runs attempts in a Kubernetes cluster: one Job each, or one
// Pod. It builds them (job.go, pod.go), checks what an agent adds to them
// (template.go), and turns what the cluster says about them into neutral
// facts.
package kube
