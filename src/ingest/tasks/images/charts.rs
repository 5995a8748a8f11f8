//! The charts of a file, as nodes like those of its tables.
use super::OrTaskFailure;
use crate::{
    ingest::tree::{self, TableNode},
    store::nodes::NewNode,
    usetype::Usetype,
};
use serde_json::{Value, json};
use svc_actors::TaskFailure;
use svc_formats::ChartTable;
use svc_ids::DocumentId;

/// A table of a chart, as its node has it.
pub(super) struct Chart {
    title: String,
    anchor: Value,
    /// The slide or the sheet that shows it.
    page: Option<u32>,
    table: TableNode,
}

impl Chart {
    /// `place`: where the table is among those of its chart, if there are several.
    fn new(table: &ChartTable, place: Option<usize>) -> Chart {
        let ChartTable { chart, name, title, page, table } = table;
        let mut anchor = json!({"chart": chart, "name": name});
        if let Some(place) = place {
            anchor["table"] = place.into();
        }
        Chart {
            title: if title.is_empty() { format!("Chart {}", chart + 1) } else { tree::title(title) },
            anchor,
            page: *page,
            table: TableNode::new(table, ""),
        }
    }

    /// The bytes of its text.
    pub(super) fn bytes(&self) -> usize {
        self.table.content.len()
    }

    /// The node under its file; `pages` is what the numbered parts of the file are called.
    pub(super) fn node(self, id: DocumentId, path: &[i64], file: DocumentId, position: i32, pages: &str) -> NewNode {
        let Chart { title, mut anchor, page, table } = self;
        if let Some(page) = page {
            anchor[pages] = json!([page, page]);
        }
        NewNode {
            id,
            parent_id: file,
            path: path.to_vec(),
            title,
            content: table.content,
            usetype: Usetype::Table,
            position,
            structured_content: table.structured,
            anchor,
        }
    }
}

/// The nodes of the tables that a reader gave, in their order.
pub(super) async fn prepare(tables: Vec<ChartTable>) -> Result<Vec<Chart>, TaskFailure> {
    let prepared = tokio::task::spawn_blocking(move || {
        let mut charts = Vec::with_capacity(tables.len());
        for of_chart in tables.chunk_by(|one, next| one.chart == next.chart) {
            for (place, table) in of_chart.iter().enumerate() {
                charts.push(Chart::new(table, (of_chart.len() > 1).then_some(place)));
            }
        }
        charts
    });
    prepared.await.classified()
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_formats::{Table, TableRule};

    #[test]
    fn a_chart_has_its_title_its_typed_cells_and_its_place() {
        let rows = [["Rain", "mm"], ["May", "8"]].map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let table = Table { ranges: Vec::new(), rule: TableRule::Chart, has_header: true, rows, parts: 1 };
        let name = "ppt/charts/chart1.xml".to_owned();
        let mut given = ChartTable { chart: 2, name, title: "Rain".to_owned(), page: Some(4), table };
        let node = |given: &ChartTable, place| {
            Chart::new(given, place).node(DocumentId(9), &[7], DocumentId(7), 1_000_000, "slides")
        };
        let first = node(&given, None);
        assert_eq!((first.title.as_str(), first.usetype, first.parent_id), ("Rain", Usetype::Table, DocumentId(7)));
        assert_eq!(first.content, "| Rain | mm |\n| --- | --- |\n| May | 8 |");
        assert_eq!(first.structured_content, json!({"table": {"columns": ["Rain", "mm"], "rows": [["May", 8]]}}));
        assert_eq!(first.anchor, json!({"chart": 2, "name": "ppt/charts/chart1.xml", "slides": [4, 4]}));
        (given.title, given.page) = (String::new(), None);
        let other = node(&given, Some(1));
        assert_eq!(other.title, "Chart 3");
        assert_eq!(other.anchor, json!({"chart": 2, "name": "ppt/charts/chart1.xml", "table": 1}));
    }
}
