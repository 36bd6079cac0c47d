package strictjson

import (
	"bytes"
	"fmt"
	"sort"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Lines returns a function that tells on which line of data, from 1, the value
// of a JSON pointer begins: the line of its name in an object. A value that is
// not there is placed at the nearest one around it. It is 0 where data has one
// line only. The function is safe for concurrent use.
func Lines(data []byte) func(pointer string) int {
	index := sync.OnceValue(func() map[string]int { return pointerLines(data) })
	if newLineIndex(data).single() {
		return func(string) int { return 0 }
	}
	return func(pointer string) int {
		lines := index()
		for p := jsontext.Pointer(pointer); ; p = p.Parent() {
			if line, ok := lines[string(p)]; ok || p == "" {
				return max(line, 1)
			}
		}
	}
}

// pointerLines maps every value of the document to its line.
func pointerLines(data []byte) map[string]int {
	lines, found := newLineIndex(data), map[string]int{}
	dec := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := dec.ReadToken(); err != nil || dec.StackDepth() > MaxDepth {
			return found
		}
		pointer := string(dec.StackPointer())
		if _, ok := found[pointer]; !ok {
			found[pointer] = lines.at(int(dec.InputOffset()))
		}
	}
}

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
