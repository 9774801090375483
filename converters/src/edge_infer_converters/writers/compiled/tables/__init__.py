"""From models over tables, as scikit-learn and boosters are exported, to the graph that is compiled."""
