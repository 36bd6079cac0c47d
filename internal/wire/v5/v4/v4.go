// Package v4 reads and writes the lines of PROTOCOL_V4, which a V5 orchestrator speaks
// to workers that know no better: eight segments, without depth, session and budget. A
// V4 agent is never sent the eleven of V5 with the hope that it passes them over: what
// V4 cannot say is refused here, by name.
package v4

import (
	"errors"
	"strings"

	"comet/internal/wire/v5"
)

// Segments is how many segments a V4 line has.
const Segments = 8

// added is what V5 has between the seventh segment and DATA (PROTOCOL_V5 §14.2).
const added = "0|-|-|"

// Parse reads a V4 line as the message it is in V5, with depth 0 and neither session
// nor budget. An error is a *v5.Error as that of v5.Parse; where the line says what
// V4 does not know, its codes are E14 for a type, E10 for an error code and E43 for a
// reference. A line of V5 is E12: its last segments would be DATA with bars in it.
func Parse(line string) (v5.Message, error) {
	at := dataAt(line)
	if at < 0 {
		return short(line)
	}
	m, err := v5.Parse(line[:at] + added + line[at:])
	var refused *v5.Error
	if errors.As(err, &refused) {
		return m, moved(refused, at)
	}
	if u := unsayable(m); u != nil {
		return m, &v5.Error{Problems: []v5.Problem{{
			Code: u.code, Segment: u.Segment, At: offset(line, u.Segment), Detail: u.Error(),
		}}}
	}
	return m, nil
}

// Format writes a message as a V4 line. Depth, session and budget are left out; whoever
// reads the answer must know them. An error is an *Unsayable, or a *v5.Error as that
// of v5.Format.
//
// Auth is written as it is: it must be that of this very line. See Down.
func Format(m v5.Message) (string, error) {
	if u := unsayable(m); u != nil {
		return "", u
	}
	m.Depth, m.Context, m.Budget = 0, "", v5.Budget{}
	line, err := v5.Format(m)
	if err != nil {
		return "", err
	}
	at := dataAt(line)
	return line[:at] + line[at+len(added):], nil
}

// Down turns a V5 line into a V4 line (§14.2). A signature is left out, for it is that
// of the V5 line; v5.Sign signs the new one. The errors are those of v5.Parse and of
// Format.
func Down(line string) (string, error) {
	m, err := v5.Parse(line)
	if err != nil {
		return "", err
	}
	m.Auth = v5.Auth{}
	return Format(m)
}

// Up turns a V4 line into a V5 line (§14.2). A signature is left out as by Down. The
// errors are those of Parse.
func Up(line string) (string, error) {
	m, err := Parse(line)
	if err != nil {
		return "", err
	}
	m.Auth = v5.Auth{}
	return v5.Format(m)
}

// dataAt is where DATA begins, -1 in a line of too few segments.
func dataAt(line string) int {
	at := 0
	for range Segments - 1 {
		bar := strings.IndexByte(line[at:], '|')
		if bar < 0 {
			return -1
		}
		at += bar + 1
	}
	return at
}
