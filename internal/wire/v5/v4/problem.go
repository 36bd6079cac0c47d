package v4

import (
	"errors"
	"fmt"
	"strings"

	"comet/internal/wire/v5"
)

// short refuses a line of too few segments; what v5.Parse reads of it is read.
func short(line string) (v5.Message, error) {
	m, err := v5.Parse(line)
	var refused *v5.Error
	if errors.As(err, &refused) && line != "" {
		refused.Problems[0].Detail = fmt.Sprintf("%s, not %d", v5.Counted(strings.Count(line, "|")+1), Segments)
	}
	return m, err
}

// moved puts the places of problems where they are in the V4 line, whose DATA begins at
// the byte dataAt.
func moved(refused *v5.Error, dataAt int) error {
	for i := range refused.Problems {
		if p := &refused.Problems[i]; p.At >= dataAt+len(added) {
			p.At -= len(added)
		}
	}
	return refused
}

// offset is the byte of a V4 line at which one of its segments begins.
func offset(line string, segment v5.Segment) int {
	if segment == v5.SegmentData {
		return dataAt(line)
	}
	at := 0
	for range segment - 1 {
		at += strings.IndexByte(line[at:], '|') + 1
	}
	return at
}
