package envelope

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// MaxChunk is the most bytes of output in one chunk.
	MaxChunk = 256 << 10
	// maxOutput limits the end of a chunk within the output of a step, in bytes.
	maxOutput = 1 << 40

	kilo = 1024 // the k of the short notation
)

// Range is the position of a chunk within the whole output, in bytes of UTF-8. It includes From and
// excludes To (Chiffon §Large Payloads).
type Range struct {
	From int64
	To   int64
	// Total is the length of the whole output, 0 if it is not given.
	Total int64
}

// Chunk is a part of an output.
type Chunk struct {
	Range
	Text string
}

// parseRange parses "bytes 0-262144 of 524288" and the short form "bytes 0-256k". Each number may
// have the suffix k, which stands for 1024 bytes, and the total is optional. The error text has no
// subject.
func parseRange(text string) (Range, error) {
	const expected = `must be a range such as "bytes 0-262144 of 524288" or "bytes 0-256k"`
	match := rangePattern.FindStringSubmatch(text)
	if match == nil {
		return Range{}, errors.New(expected)
	}
	var numbers [3]int64
	for i, text := range match[1:] {
		var ok bool
		if numbers[i], ok = parseOffset(text); !ok {
			return Range{}, errors.New(expected)
		}
	}
	r := Range{From: numbers[0], To: numbers[1], Total: numbers[2]}
	if match[3] != "" && r.Total == 0 {
		return Range{}, errors.New("must name a total of at least 1 byte")
	}
	return r, r.check()
}

// rangePattern matches a range, in which the total may be missing.
var rangePattern = regexp.MustCompile(`^bytes ([0-9]+k?)-([0-9]+k?)(?: of ([0-9]+k?))?$`)

// parseOffset parses a number of bytes, 0 for "". check rejects numbers that are too high.
func parseOffset(text string) (int64, bool) {
	digits, short := strings.CutSuffix(cmp.Or(text, "0"), "k")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/kilo {
		return 0, false
	}
	if short {
		n *= kilo
	}
	return n, true
}

func (r Range) check() error {
	switch {
	case r.From < 0 || r.From >= r.To:
		return fmt.Errorf("must end after its start, %s does not", r)
	case r.To-r.From > MaxChunk:
		return fmt.Errorf("must have at most %d bytes, %s has %d", MaxChunk, r, r.To-r.From)
	case r.Total != 0 && r.To > r.Total:
		return fmt.Errorf("must end within the total, %s does not", r)
	case max(r.To, r.Total) > maxOutput:
		return fmt.Errorf("must end within the first %d bytes, %s does not", maxOutput, r)
	}
	return nil
}

// String returns the long form, without a total if it is not known.
func (r Range) String() string {
	if r.Total == 0 {
		return fmt.Sprintf("bytes %d-%d", r.From, r.To)
	}
	return fmt.Sprintf("bytes %d-%d of %d", r.From, r.To, r.Total)
}

// MarshalText implements encoding.TextMarshaler.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Split cuts an output into chunks of at most limit bytes, at most MaxChunk, at character
// boundaries. An empty output has no chunks.
func Split(output string, limit int) []Chunk {
	limit = min(limit, MaxChunk)
	total := int64(len(output))
	var chunks []Chunk
	for from := int64(0); from < total; {
		text := output[from:]
		if len(text) > limit {
			text = text[:cut(text, limit)]
		}
		to := from + int64(len(text))
		chunks = append(chunks, Chunk{Range{from, to, total}, text})
		from = to
	}
	return chunks
}

// cut returns the last character boundary up to limit. Invalid UTF-8 is cut anywhere.
func cut(text string, limit int) int {
	for end := limit; end > max(limit-utf8.UTFMax, 0); end-- {
		if utf8.RuneStart(text[end]) {
			return end
		}
	}
	return limit
}
