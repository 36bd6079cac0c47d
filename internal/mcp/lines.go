package mcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// maxLine is how long a message of a client over stdio may be, in bytes.
const maxLine = 16 << 20

// boundedLines cuts what a client says into lines of at most so many bytes. A longer one is left
// out; tooLong hears of it when it has begun.
func boundedLines(in io.Reader, most int, tooLong func()) *bufio.Scanner {
	lines, skipping := bufio.NewScanner(in), false
	lines.Buffer(nil, most+2) // a line that is just long enough, and what shows that it is longer
	lines.Split(func(data []byte, atEOF bool) (advance int, line []byte, err error) {
		end := bytes.IndexByte(data, '\n')
		switch {
		case skipping && end >= 0:
			skipping = false
			return end + 1, nil, nil
		case skipping:
			return len(data), nil, nil
		case end > most, end < 0 && len(data) > most:
			tooLong()
			skipping = end < 0
			if skipping {
				return len(data), nil, nil
			}
			return end + 1, nil, nil
		case end >= 0:
			return end + 1, data[:end], nil
		case atEOF && len(data) > 0:
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	return lines
}

// lineTooLongText is what is said of a line that was left out.
func lineTooLongText() string { return fmt.Sprintf("a message may have %d bytes", maxLine) }
