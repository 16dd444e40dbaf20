"""scikit-learn's estimators: fitted on a table, asked about another, in one node each."""
