package codec

import (
	"bytes"
	"compress/bzip2"
	_ "embed"
	"io"
	"strings"
	"sync"
)

// o200kBasePacked is a bzip2 file. It contains the lengths of all tokens, one byte each, in the order of
// the ids from 0; then a zero byte; then the tokens in the same order. No token is empty, so the zero
// byte is unambiguous.
//
//go:embed o200k_base.vocab.bz2
var o200kBasePacked []byte

var (
	o200kBaseVocab     vocab
	o200kBaseVocabOnce sync.Once
)

func o200kBaseVocabInit() {
	var all strings.Builder
	if _, err := io.Copy(&all, bzip2.NewReader(bytes.NewReader(o200kBasePacked))); err != nil {
		panic(err) // embedded
	}
	lengths, text, _ := strings.Cut(all.String(), "\x00")
	o200kBaseVocab = make(vocab, len(lengths))
	for id := range len(lengths) {
		n := int(lengths[id])
		o200kBaseVocab[text[:n]] = uint(id)
		text = text[n:]
	}
}
