package v5

import (
	"strconv"
	"strings"
)

// Role is what an address stands for (PROTOCOL_V5 §2.1).
type Role byte

// The roles, and the addresses that have no number.
const (
	Orchestrator Role = 'O'
	Worker       Role = 'W'
	Router       Role = 'R'
	Group        Role = 'G'
	// User is the person behind O1.
	User Role = 'U'
	// Everyone is the destination *.
	Everyone Role = '*'
	// Workers is the destination W*.
	Workers Role = 'w'
)

// maxSub is the longest name of a sub-agent: MaxAddress without W1 and the dot.
const maxSub = MaxAddress - 3

// Address is one end of a route (§2.2), or where Parse could not read it the zero
// Address. Addresses can be compared with == and hold no pointer.
type Address struct {
	Role Role
	// Number is 1 to 9, of a worker 1 to 99, and 0 for User, Everyone and Workers.
	Number uint8
	sub    [maxSub]byte
}

// NthWorker returns the address of the n-th worker that joins, from 1: W1 to W99, then
// W1.1 to W99.1, W1.2 and so on.
func NthWorker(n int) Address {
	a := Address{Role: Worker, Number: uint8((n-1)%99) + 1}
	if round := (n - 1) / 99; round > 0 {
		copy(a.sub[:], strconv.Itoa(round))
	}
	return a
}

// ParseAddress reads an address such as O1, W42, O1.W1, W*, * or User. The error is an
// *Error with E13.
func ParseAddress(text string) (Address, error) {
	a, problem := parseAddress(text)
	if problem != "" {
		return Address{}, refusal(E13, "", SegmentRoute, quote(text)+" "+problem)
	}
	return a, nil
}

// parseAddress returns an address, or what is wrong with it.
func parseAddress(text string) (Address, string) {
	if len(text) > MaxAddress {
		return Address{}, "is longer than 10 characters"
	}
	if len(text) < 2 || text[1]-'0' > 9 {
		return wordAddress(text)
	}
	a := Address{Role: Role(text[0])}
	limit := a.Role.limit()
	if limit == 0 {
		return wordAddress(text)
	}
	a.Number = text[1] - '0'
	rest := text[2:]
	if rest != "" && rest[0]-'0' <= 9 && a.Number > 0 {
		a.Number = a.Number*10 + rest[0] - '0'
		rest = rest[1:]
	}
	if a.Number == 0 || a.Number > limit {
		return Address{}, "has a number that is not 1 to " + strconv.Itoa(int(limit))
	}
	if rest == "" {
		return a, ""
	}
	if rest[0]-'0' <= 9 {
		return Address{}, tooHigh(a.Role, text[1:])
	}
	if rest[0] != '.' || !alphanumeric(rest[1:]) || len(rest) > maxSub+1 {
		return Address{}, "has more after its number than a dot with letters and digits"
	}
	copy(a.sub[:], rest[1:])
	return a, ""
}

// tooHigh is what is wrong with a number above those of its role. Workers go on behind W99.
func tooHigh(role Role, number string) string {
	wrong := "has a number that is not 1 to " + strconv.Itoa(int(role.limit()))
	if n, err := strconv.Atoi(number); err == nil && role == Worker {
		wrong += "; the worker with the number " + number + " is " + NthWorker(n).String()
	}
	return wrong
}

// wordAddress reads the addresses without a number.
func wordAddress(text string) (Address, string) {
	switch text {
	case "*":
		return Address{Role: Everyone}, ""
	case "W*":
		return Address{Role: Workers}, ""
	case "User":
		return Address{Role: User}, ""
	}
	return Address{}, "must be an id such as O1, W42, R1, G1 or W1.2, or User, * or W*"
}

// limit is the highest number of a role, 0 for one that has none.
func (r Role) limit() uint8 {
	switch r {
	case Orchestrator, Router, Group:
		return 9
	case Worker:
		return 99
	}
	return 0
}

// Many reports whether the address stands for more than one agent: *, W* and G1 are
// destinations only.
func (a Address) Many() bool {
	return a.Role == Everyone || a.Role == Workers || a.Role == Group
}

// Sub is the name of the sub-agent, what stands behind the dot, "" where there is none.
func (a Address) Sub() string { return strings.TrimRight(string(a.sub[:]), "\x00") }

// String is the address as it stands in a line, "" for the zero Address.
func (a Address) String() string { return string(a.append(nil)) }

func (a Address) append(line []byte) []byte {
	switch a.Role {
	case 0:
		return line
	case Everyone:
		return append(line, '*')
	case Workers:
		return append(line, "W*"...)
	case User:
		return append(line, "User"...)
	}
	line = strconv.AppendUint(append(line, byte(a.Role)), uint64(a.Number), 10)
	if a.sub[0] == 0 {
		return line
	}
	return append(append(line, '.'), a.Sub()...)
}

func alphanumeric(text string) bool {
	for i := range len(text) {
		if c := text[i]; c-'0' > 9 && c|0x20-'a' > 25 {
			return false
		}
	}
	return text != ""
}
