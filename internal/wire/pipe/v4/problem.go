package v4

import (
	"errors"
	"fmt"
	"strings"

	"comet/internal/wire/pipe"
)

// short refuses a line of too few segments; what pipe.Parse reads of it is read.
func short(line string) (pipe.Message, error) {
	m, err := pipe.Parse(line)
	var refused *pipe.Error
	if errors.As(err, &refused) && line != "" {
		refused.Problems[0].Detail = fmt.Sprintf("%s, not %d", pipe.Counted(strings.Count(line, "|")+1), Segments)
	}
	return m, err
}

// moved puts the places of problems where they are in the V4 line, whose DATA begins at
// the byte dataAt.
func moved(refused *pipe.Error, dataAt int) error {
	for i := range refused.Problems {
		if p := &refused.Problems[i]; p.At >= dataAt+len(added) {
			p.At -= len(added)
		}
	}
	return refused
}

// offset is the byte of a V4 line at which one of its segments begins.
func offset(line string, segment pipe.Segment) int {
	if segment == pipe.SegmentData {
		return dataAt(line)
	}
	at := 0
	for range segment - 1 {
		at += strings.IndexByte(line[at:], '|') + 1
	}
	return at
}
