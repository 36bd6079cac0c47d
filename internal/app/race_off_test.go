//go:build !race

package app_test

// buildFlags build the program as its tests are built.
func buildFlags() []string { return nil }
