package mask_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman/internal/mask"
)

// twenty secrets of the usual kinds.
func twenty() []mask.Secret {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int, alphabet string) string {
		var b strings.Builder
		for range n {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	const word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	secrets := []mask.Secret{{"DSN", "postgres://tally:p%40ss/w" + random(12, word) + "@db.internal:5432/main?sslmode=require"}}
	var pem strings.Builder
	pem.WriteString("-----BEGIN PRIVATE KEY-----\n")
	for range 26 {
		pem.WriteString(random(64, word+"+/") + "\n")
	}
	pem.WriteString("-----END PRIVATE KEY-----\n")
	secrets = append(secrets, mask.Secret{"PEM", pem.String()})
	for i := range 18 {
		secrets = append(secrets, mask.Secret{fmt.Sprint("KEY_", i), []string{"sk-ant-api03-", "ghp_", "AKIA", ""}[i%4] + random(16+3*i, word)})
	}
	return secrets
}

// prose is text like an agent's: words, code, paths, with a few line breaks.
func prose(n int) string {
	r := rand.New(rand.NewPCG(3, 4))
	words := strings.Fields(`the of func return error if err nil test file path string "quoted" /usr/local/bin := {} () main.go
		package import context secret key token value result running 12345 0xdeadbeef https://example.com/a?b=c postgres user`)
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(" \n  \t     "[r.IntN(10)])
	}
	return b.String()
}

func BenchmarkMask(b *testing.B) {
	m := mask.New(twenty())
	text := prose(1 << 20)
	line, err := json.Marshal(map[string]string{"type": "text", "text": text})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("String", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			m.String(text)
		}
	})
	b.Run("String with a secret of 4", func(b *testing.B) {
		m := mask.New(append(twenty(), mask.Secret{"PIN", "0042"}))
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			m.String(text)
		}
	})
	b.Run("JSON", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		for b.Loop() {
			m.JSON(line)
		}
	})
	b.Run("Stream", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			s := m.Stream()
			for i := 0; i < len(text); i += 40 {
				s.Write(text[i:min(i+40, len(text))])
			}
		}
	})
	b.Run("New", func(b *testing.B) {
		secrets := twenty()
		for b.Loop() {
			mask.New(secrets)
		}
	})
}
