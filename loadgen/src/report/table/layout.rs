//! One table of figures, drawn for a terminal.

use std::collections::BTreeSet;

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};

use super::super::best::{baseline_policy, best_text, is_best, speedup};
use super::super::metric::Metric;
use super::super::variant::{self, Variant, is_default, varying};
use super::Glyphs;
use crate::run::World;

/// One table: what is in it and how it is drawn.
pub(super) struct Layout<'t, 'a> {
    pub(super) variants: &'t [Variant<'a>],
    pub(super) world: World,
    pub(super) rows: &'t [&'t Variant<'a>],
    pub(super) columns: &'t [(&'static str, &'static Metric)],
    pub(super) glyphs: Glyphs,
}

impl Layout<'_, '_> {
    /// The table at its natural width, or squeezed into `width`.
    pub(super) fn draw(&self, width: Option<u16>) -> String {
        let keys = self.keys();
        let mut table = Table::new();
        table.load_style(lines(self.glyphs)).set_header(self.header(&keys));
        match width {
            None => table.set_content_arrangement(ContentArrangement::Disabled),
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        };
        for variant in self.rows {
            let mut cells = vec![Cell::new(self.name(variant))];
            cells.extend(keys.iter().map(|key| right(setting(variant, key))));
            cells.extend(self.figures(variant).into_iter().map(right));
            table.add_row(cells);
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 0));
            if place > keys.len() && width.is_some() {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        table.trim_fmt()
    }

    /// The swept keys that differ between the variants of a policy.
    fn keys(&self) -> Vec<&str> {
        let policies: BTreeSet<&str> = self.rows.iter().map(|variant| variant.policy).collect();
        let keys: BTreeSet<&str> =
            policies.into_iter().flat_map(|policy| varying(self.variants, self.world, policy)).collect();
        keys.into_iter().collect()
    }

    fn header(&self, keys: &[&str]) -> Vec<Cell> {
        let mut cells = vec![Cell::new("policy")];
        // The marks of best figures stand right of the digits, so headings end one column earlier.
        let padded =
            |text: &str| right(text.lines().map(|line| format!("{line} ")).collect::<Vec<_>>().join("\n"));
        cells.extend(keys.iter().map(|key| padded(&variant::heading(key).replace('_', "_\n"))));
        let baseline = baseline_policy(self.variants, self.world);
        for (place, (heading, _)) in self.columns.iter().enumerate() {
            cells.push(padded(heading));
            if let Some(policy) = baseline.filter(|_| place == 0) {
                cells.push(padded(&format!("vs. {}", policy.replace('_', "_\n"))));
            }
        }
        cells
    }

    fn name(&self, variant: &Variant<'_>) -> String {
        let best = match (is_best(self.variants, variant), self.glyphs) {
            (true, Glyphs::Unicode) => '▸',
            (true, Glyphs::Ascii) => '>',
            _ => ' ',
        };
        match (best, is_default(self.variants, variant)) {
            (' ', true) => format!("= {}", variant.policy),
            (best, true) => format!("{best}={}", variant.policy),
            (best, false) => format!("{best} {}", variant.policy),
        }
    }

    fn figures(&self, variant: &Variant<'_>) -> Vec<String> {
        let mut cells = Vec::new();
        for (place, (_, metric)) in self.columns.iter().enumerate() {
            let median = variant.spread(metric).map(|spread| spread.median);
            let text = median.map_or("-".to_owned(), |median| metric.cell(median));
            let is_best = best_text(self.rows, variant, metric).is_some_and(|best| best == text);
            cells.push(format!("{text}{}", if is_best { "*" } else { " " }));
            if place == 0 && baseline_policy(self.variants, self.world).is_some() {
                let ratio = speedup(self.variants, variant);
                cells.push(ratio.map_or("- ".to_owned(), |r| format!("{r:.2} ")));
            }
        }
        cells
    }
}

/// A swept value; nothing where the key does not concern the policy.
fn setting(variant: &Variant<'_>, key: &str) -> String {
    variant.params.get(key).map_or(String::new(), |_| format!("{} ", variant.reading(key)))
}

/// Three lines: above, below the heading, at the end.
fn lines(glyphs: Glyphs) -> TableStyle {
    let line = |c| LineStyle::none().fill(c).junction(c);
    let (thin, thick) = if glyphs == Glyphs::Unicode { ('─', '━') } else { ('-', '=') };
    TableStyle::new().top_border(line(thin)).header_separator(line(thick)).bottom_border(line(thin))
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
