// Command vocabulary generates the compressed vocabulary of third_party/tokenizer. It reads the tokens
// of o200k_base from github.com/tiktoken-go/tokenizer and writes them in the format that
// third_party/tokenizer/codec describes. It needs the command bzip2. Run it in the folder tools after an update of that library.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"

	"github.com/tiktoken-go/tokenizer/codec"
)

func main() {
	out := flag.String("out", "../third_party/tokenizer/codec/o200k_base.vocab.bz2", "output file")
	flag.Parse()
	packed, err := pack()
	if err == nil {
		err = os.WriteFile(*out, packed, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vocabulary:", err)
		os.Exit(1)
	}
}

// pack returns the compressed vocabulary.
func pack() ([]byte, error) {
	var lengths, text []byte
	o200k := codec.NewO200kBase()
	for id := uint(0); ; id++ {
		token, err := o200k.Decode([]uint{id})
		if err != nil {
			break // the previous id was the last one
		}
		if len(token) > math.MaxUint8 {
			return nil, fmt.Errorf("token %d has %d bytes", id, len(token))
		}
		lengths, text = append(lengths, byte(len(token))), append(text, token...)
	}
	pack := exec.CommandContext(context.Background(), "bzip2", "--best", "--stdout")
	pack.Stdin = bytes.NewReader(append(append(lengths, 0), text...))
	return pack.Output()
}
