package codec

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"strings"
	"sync"
)

// o200kBasePacked is a gzip file. It contains the lengths of all tokens, one byte each, in the order of
// the ids from 0; then a zero byte; then the tokens in the same order. No token is empty, so the zero
// byte is unambiguous.
//
//go:embed o200k_base.vocab.gz
var o200kBasePacked []byte

var (
	o200kBaseVocab     vocab
	o200kBaseVocabOnce sync.Once
)

func o200kBaseVocabInit() {
	reader, err := gzip.NewReader(bytes.NewReader(o200kBasePacked))
	if err != nil {
		panic(err) // embedded
	}
	var all strings.Builder
	if _, err := io.Copy(&all, reader); err != nil {
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
