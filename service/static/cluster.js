// Learning on a cluster: the link to the learner, and the daemons that send it transitions.

import { $, newRow, put } from "./dom.js";
import { shown } from "./format.js";

const COLUMNS = [
  ["name", "", "id", "text"], ["number", "Share", "share", "count"],
  ["number", "Generated", "generated", "count"], ["number", "Sent", "shipped", "count"],
  ["number", "Learned from", "learned", "count"],
];

function showNodes(nodes) {
  const body = $("#nodes");
  while (body.rows.length > nodes.length) body.lastChild.remove();
  nodes.forEach((node, place) => {
    const row = body.rows[place] ?? body.appendChild(newRow(COLUMNS));
    COLUMNS.forEach(([, , name, format], i) => put(row.cells[i], shown(node[name], format)));
  });
}

// A daemon without a cluster has no such figures, and no such panel.
export function showCluster({ cluster, verdicts }) {
  $("#cluster").hidden = !cluster;
  if (!cluster) return;
  $("#cluster-link").dataset.level = verdicts.cluster.level;
  put($("#cluster-link"), verdicts.cluster.detail);
  $("#emulated").hidden = !cluster.emulated;
  showNodes(cluster.nodes);
}
