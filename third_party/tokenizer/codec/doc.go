// Package codec is a copy of package codec of github.com/tiktoken-go/tokenizer v0.10.0 with only one
// vocabulary, o200k_base, which is embedded in compressed form. Upstream contains its vocabularies as Go
// maps; that of o200k_base makes a program 5 MB larger than this form. The files codec.go,
// o200k_base.go, regexp.gen.go and vocab.go are unchanged.
//
// tools/vocabulary generates the vocabulary. To update this copy: copy the four files, change the
// version in tools/go.mod and in comet's go.mod, run tools/vocabulary, and run the tests of
// internal/tools.
package codec
