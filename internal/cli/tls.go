package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// How long what the server makes for itself is good for. Its certificate is
// made anew with each start.
const (
	authorityAge   = 10 * 365 * 24 * time.Hour
	certificateAge = 365 * 24 * time.Hour
	clockSkew      = time.Hour
)

// authority is the PEM of who vouches for this server, "" where that is
// somebody whom systems know, or nobody is needed.
func (s *server) authority() (string, error) {
	if !s.cfg.UsesTLS() || s.cfg.TLSCert != "" {
		return "", nil
	}
	ca, err := openAuthority(s.cfg.Data)
	if err != nil {
		return "", err
	}
	return string(ca.pem), nil
}

// tlsConfig is what the server's TCP listener speaks, nil for plain HTTP.
func (s *server) tlsConfig() (*tls.Config, error) {
	if !s.cfg.UsesTLS() {
		return nil, nil
	}
	var cert tls.Certificate
	var err error
	if s.cfg.TLSCert != "" {
		if cert, err = tls.LoadX509KeyPair(s.cfg.TLSCert, s.cfg.TLSKey); err != nil {
			return nil, fmt.Errorf("read the certificate %s: %w", s.cfg.TLSCert, err)
		}
	} else {
		ca, err := openAuthority(s.cfg.Data)
		if err != nil {
			return nil, err
		}
		advertised, err := url.Parse(s.cfg.Advertise)
		if err != nil {
			return nil, fmt.Errorf("advertise: %w", err)
		}
		if cert, err = ca.certify(advertised.Hostname()); err != nil {
			return nil, err
		}
	}
	// HTTP/1.1 alone: the gateway keeps the streams of orders by themselves.
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// authority signs the server's own certificates. It lives in the data folder,
// so that Pods that were told of it can still trust the next server.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// openAuthority reads the data folder's authority, and makes one where there
// is none.
func openAuthority(data string) (authority, error) {
	a, err := readAuthority(data)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	b, err := makeAuthority()
	if err == nil {
		err = writePrivate(filepath.Join(data, "ca.pem"), b)
	}
	if err != nil {
		return authority{}, fmt.Errorf("the server's own authority: %w", err)
	}
	return parseAuthority(b)
}

// readAuthority reads the data folder's authority.
func readAuthority(data string) (authority, error) {
	path := filepath.Join(data, "ca.pem")
	b, err := os.ReadFile(path)
	if err != nil {
		return authority{}, fmt.Errorf("the server's own authority: %w", err)
	}
	a, err := parseAuthority(b)
	if err != nil {
		return a, fmt.Errorf("the server's own authority: %s: %w; remove the file to have another made", path, err)
	}
	return a, nil
}

// parseAuthority reads a key and a certificate, PEM.
func parseAuthority(b []byte) (a authority, err error) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			a.key, err = x509.ParseECPrivateKey(block.Bytes)
		case "CERTIFICATE":
			a.pem = pem.EncodeToMemory(block)
			a.cert, err = x509.ParseCertificate(block.Bytes)
		}
		if err != nil {
			return a, err
		}
	}
	if a.key == nil || a.cert == nil {
		return a, errors.New("a key or a certificate is missing")
	}
	if time.Now().After(a.cert.NotAfter) {
		return a, fmt.Errorf("it was good until %s", a.cert.NotAfter.Format(time.DateOnly))
	}
	return a, nil
}

func makeAuthority() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("tallyman", authorityAge)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...), nil
}

func certificate(name string, age time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(age),
	}
}

func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return new(big.Int).SetBytes(b[:])
}

// certify makes a certificate for a host, and for this machine.
func (a authority) certify(host string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := certificate(host, certificateAge)
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the server's certificate for %s: %w", host, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the server's certificate for %s: %w", host, err)
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// writePrivate writes a file that only its owner reads, whole or not at all.
func writePrivate(path string, b []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
