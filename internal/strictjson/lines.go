package strictjson

import (
	"bytes"
	"fmt"
	"sort"
)

// lineIndex turns byte offsets into lines. It is made once a document, when
// something is wrong with it.
type lineIndex struct {
	ends []int // offset of each line feed that is followed by more text
	size int
}

func newLineIndex(data []byte) *lineIndex {
	x := &lineIndex{size: len(data)}
	text := bytes.TrimRight(data, " \t\r\n")
	for i := 0; ; i++ {
		next := bytes.IndexByte(text[i:], '\n')
		if next < 0 {
			return x
		}
		i += next
		x.ends = append(x.ends, i)
	}
}

func (x *lineIndex) single() bool { return len(x.ends) == 0 }

// at returns the 1-based line of an offset, 0 in a document of one line.
func (x *lineIndex) at(offset int) int {
	if x.single() {
		return 0
	}
	return sort.SearchInts(x.ends, offset) + 1
}

// place writes an offset for a person. Columns count bytes from 1.
func (x *lineIndex) place(offset int) string {
	if x.single() {
		return fmt.Sprintf("at column %d", offset+1)
	}
	line, start := x.at(offset), 0
	if line > 1 {
		start = x.ends[line-2] + 1
	}
	return fmt.Sprintf("at line %d, column %d", line, offset-start+1)
}
