package cli

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tallyman-dev/tallyman/internal/auth"
	"github.com/tallyman-dev/tallyman/internal/config"
)

func (c *command) configCommand() *cobra.Command {
	var link, token bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration in force and where each value comes from",
		Long: `Flags win over the environment (TALLYMAN_…), that over tallyman.yaml, that over the
defaults. Secrets are masked. All that is wrong is told at once, with exit code 2.`,
		Example: `  tallyman config
  tallyman config -o json
  tallyman config --login-link`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if link {
				return c.loginLink(cmd)
			}
			cfg, origins, err := c.config()
			if err != nil {
				return err
			}
			if token {
				return c.printToken(cfg)
			}
			if c.whole() {
				return c.printObject(cfg.Shown(origins))
			}
			return cfg.Print(c.out, origins)
		},
	}
	cmd.Flags().BoolVar(&link, "login-link", false, "print a link that logs one browser in to the running server; works once")
	cmd.Flags().BoolVar(&token, "token", false, "print the token of the data folder's server, for --token-file elsewhere")
	c.backendFlags(cmd)
	c.outputFlag(cmd, "json", "yaml")
	return cmd
}

// printToken prints what --token-file wants, for a place without a shell.
func (c *command) printToken(cfg config.Config) error {
	token, err := auth.ReadToken(cmp.Or(cfg.TokenFile, filepath.Join(cfg.Data, "token")))
	if err != nil {
		return err
	}
	if c.whole() {
		return c.printObject(map[string]string{"token": token})
	}
	_, err = fmt.Fprintln(c.out, token)
	return err
}

func (c *command) loginLink(cmd *cobra.Command) error {
	s, err := c.connect(cmd.Context(), looks)
	if err != nil {
		return err
	}
	url, err := s.LoginLink(cmd.Context())
	if err != nil {
		return err
	}
	if c.whole() {
		return c.printObject(map[string]string{"url": url})
	}
	_, err = fmt.Fprintln(c.out, url)
	return err
}

func (c *command) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version",
		Example: "  tallyman version\n  tallyman version -o json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.whole() {
				return c.printObject(map[string]string{"version": c.program.Version})
			}
			_, err := fmt.Fprintln(c.out, "tallyman", c.program.Version)
			return err
		},
	}
	c.outputFlag(cmd, "json", "yaml")
	return cmd
}
