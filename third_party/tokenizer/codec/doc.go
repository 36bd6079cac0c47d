// Package codec is that of github.com/tiktoken-go/tokenizer v0.10.0 with one vocabulary, o200k_base,
// which is embedded compressed. Upstream has four, as Go maps; o200k_base alone makes a program 7 MB
// larger. codec.go, o200k_base.go, regexp.gen.go and vocab.go are upstream's files.
//
// tools/vocabulary writes the vocabulary. To update: copy the four files, raise the version in
// tools/go.mod and in the go.mod of comet, run the tool, and run the tests of internal/tools.
package codec
