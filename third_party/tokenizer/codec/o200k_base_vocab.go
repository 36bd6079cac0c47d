package codec

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"strings"
	"sync"
)

// o200kBasePacked is compressed with gzip. It has the length of each token as one byte, in the order
// of the ids, which begin at 0, and then the tokens, in the same order. No token is empty: a length
// of 0 ends the lengths.
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
